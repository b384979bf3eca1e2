// Prints the numbers of a running JVM that match patterns of JMX: the name of the MBean, the attribute and the value,
// separated by tabs. The arguments are the process id and the patterns. Compiled and run by kafkas_metrics.py.

import com.sun.tools.attach.VirtualMachine;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

public class MetricNames {
    public static void main(String[] args) throws Exception {
        VirtualMachine machine = VirtualMachine.attach(args[0]);
        String address = machine.startLocalManagementAgent();
        machine.detach();
        try (JMXConnector connector = JMXConnectorFactory.connect(new JMXServiceURL(address))) {
            MBeanServerConnection server = connector.getMBeanServerConnection();
            for (int i = 1; i < args.length; i++) {
                for (ObjectName name : server.queryNames(new ObjectName(args[i]), null)) {
                    for (MBeanAttributeInfo attribute : server.getMBeanInfo(name).getAttributes()) {
                        Object value = server.getAttribute(name, attribute.getName());
                        System.out.println(name + "\t" + attribute.getName() + "\t" + value);
                    }
                }
            }
        }
    }
}
