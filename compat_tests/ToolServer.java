// Runs Apache Kafka's command-line tools one after another, all in one JVM. Reads a request per line from stdin,
// {"id": 1, "op": "run", "main": class, "args": [words], "stdin": base64 or null}, and answers it with {"id": 1, "result": {"status": ...,
// "out": ..., "err": ...}}. Compiled and run by tool_server.py.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;

public class ToolServer {
    // Where a tool would end the JVM, this is thrown.
    private static final class Ended extends Error {
        private static final long serialVersionUID = 1L;
    }

    private static Integer status;

    // What the tool would do at the end of its JVM.
    private static final List<Runnable> hooks = new CopyOnWriteArrayList<>();

    // The first status counts. A tool that catches what it threw here says so, and would not have lived to say it.
    private static void end(int wanted, String message) {
        if (status == null) {
            if (message != null) {
                System.err.println(message);
            }
            status = wanted;
            System.setOut(new PrintStream(OutputStream.nullOutputStream()));
            System.setErr(new PrintStream(OutputStream.nullOutputStream()));
        }
        throw new Ended();
    }

    // Apache Kafka 4.4 has the class in another package than 4.3.
    private static void takeOverExits() throws ReflectiveOperationException {
        Class<?> exit;
        try {
            exit = Class.forName("org.apache.kafka.common.utils.internals.Exit");
        } catch (ClassNotFoundException missing) {
            exit = Class.forName("org.apache.kafka.common.utils.Exit");
        }
        Class<?> procedure = Class.forName(exit.getName() + "$Procedure");
        Object own = Proxy.newProxyInstance(
            procedure.getClassLoader(),
            new Class<?>[] {procedure},
            (proxy, method, given) -> {
                end((Integer) given[0], (String) given[1]);
                return null;
            });
        exit.getMethod("setExitProcedure", procedure).invoke(null, own);
        exit.getMethod("setHaltProcedure", procedure).invoke(null, own);
        Class<?> adder = Class.forName(exit.getName() + "$ShutdownHookAdder");
        Object added = Proxy.newProxyInstance(
            adder.getClassLoader(),
            new Class<?>[] {adder},
            (proxy, method, given) -> hooks.add((Runnable) given[1]));
        exit.getMethod("setShutdownHookAdder", adder).invoke(null, added);
    }

    private static Map<String, Object> run(String main, String[] words, byte[] stdin) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        System.setIn(new ByteArrayInputStream(stdin == null ? new byte[0] : stdin));
        status = null;
        hooks.clear();
        try {
            Class.forName(main).getMethod("main", String[].class).invoke(null, (Object) words);
            status = status == null ? 0 : status;
        } catch (ReflectiveOperationException failure) {
            if (status == null) {
                Throwable thrown = failure instanceof InvocationTargetException ? failure.getCause() : failure;
                thrown.printStackTrace();
                status = 1;
            }
        }
        if (stdin != null) {
            // A producer of what it has read sends the rest when it is closed there.
            hooks.forEach(Runnable::run);
        }
        return Map.of(
            "status", status,
            "out", out.toString(StandardCharsets.UTF_8),
            "err", err.toString(StandardCharsets.UTF_8));
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        takeOverExits();
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonNode request = mapper.readTree(line);
            List<String> words = new ArrayList<>();
            request.get("args").forEach(word -> words.add(word.asText()));
            Map<String, Object> result = run(
                request.get("main").asText(),
                words.toArray(new String[0]),
                request.get("stdin").binaryValue());
            answers.println(mapper.writeValueAsString(Map.of("id", request.get("id").asInt(), "result", result)));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
