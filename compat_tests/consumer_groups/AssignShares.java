import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.SimpleAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Kafka's own assignor of share groups, asked line by line:
 *   TOPIC=COUNT:ASSIGNABLE ... | MEMBER TOPIC+TOPIC TOPIC:0.1.2+TOPIC:3 | MEMBER ...
 * answered by MEMBER TOPIC:0.1.2+TOPIC:3 | ..., everything sorted; "-" stands for nothing, also after a topic.
 */
public final class AssignShares {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(answer(line.split(" \\| ")));
            System.out.flush();
        }
    }

    private static String answer(String[] parts) {
        Map<Uuid, Integer> counts = new HashMap<>();
        Map<Uuid, Set<Integer>> assignable = new HashMap<>();
        for (String topic : parts[0].split(" ")) {
            String[] pair = topic.split("=");
            String[] numbers = pair[1].split(":");
            counts.put(Uuid.fromString(pair[0]), Integer.parseInt(numbers[0]));
            assignable.put(Uuid.fromString(pair[0]), numbers(numbers[1]));
        }
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Set<Set<Uuid>> subscriptions = new HashSet<>();
        for (int i = 1; i < parts.length; i++) {
            String[] words = parts[i].split(" ");
            Set<Uuid> topics = new LinkedHashSet<>();
            if (!words[1].equals("-"))
                for (String topic : words[1].split("\\+")) topics.add(Uuid.fromString(topic));
            subscriptions.add(topics);
            Map<Uuid, Set<Integer>> assigned = new HashMap<>();
            if (!words[2].equals("-"))
                for (String topic : words[2].split("\\+")) {
                    String[] pair = topic.split(":");
                    assigned.put(Uuid.fromString(pair[0]), numbers(pair[1]));
                }
            members.put(words[0], new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), Optional.empty(), topics, new Assignment(assigned)));
        }
        SubscriptionType type = subscriptions.size() > 1 ? SubscriptionType.HETEROGENEOUS : SubscriptionType.HOMOGENEOUS;
        GroupAssignment result = new SimpleAssignor().assign(
            new GroupSpecImpl(members, type, Map.of(), Optional.of(assignable)), new Describer(counts));
        List<String> found = new ArrayList<>();
        for (String member : new TreeSet<>(members.keySet())) {
            MemberAssignment own = result.members().get(member);
            found.add(member + " " + text(own == null ? Map.of() : own.partitions()));
        }
        return String.join(" | ", found);
    }

    private static Set<Integer> numbers(String text) {
        List<Integer> list = new ArrayList<>();
        if (!text.equals("-"))
            for (String number : text.split("\\.")) list.add(Integer.parseInt(number));
        return new HashSet<>(list);
    }

    private static String text(Map<Uuid, Set<Integer>> partitions) {
        Map<String, String> sorted = new TreeMap<>();
        partitions.forEach((topic, set) -> {
            List<String> words = new ArrayList<>();
            for (Integer partition : new TreeSet<>(set)) words.add(partition.toString());
            sorted.put(topic.toString(), words.isEmpty() ? "-" : String.join(".", words));
        });
        List<String> found = new ArrayList<>();
        sorted.forEach((topic, words) -> found.add(topic + ":" + words));
        return found.isEmpty() ? "-" : String.join("+", found);
    }

    private record Describer(Map<Uuid, Integer> counts) implements SubscribedTopicDescriber {
        @Override
        public int numPartitions(Uuid topicId) {
            return counts.getOrDefault(topicId, -1);
        }

        @Override
        public Set<String> racksForPartition(Uuid topicId, int partition) {
            return Set.of();
        }
    }
}
