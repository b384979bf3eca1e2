import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Kafka's own assignors, asked line by line:
 *   ASSIGNOR (with ! if the members subscribe in different ways) | TOPIC=COUNT ... | MEMBER INSTANCE-OR-* TOPIC+TOPIC TOPIC:0.1.2+TOPIC:3 | MEMBER ...
 * answered by MEMBER TOPIC:0.1.2+TOPIC:3 | ..., everything sorted; "-" stands for nothing.
 */
public final class Assign {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(answer(line.split(" \\| ")));
            System.out.flush();
        }
    }

    private static String answer(String[] parts) {
        Map<Uuid, Integer> counts = new HashMap<>();
        for (String topic : parts[1].split(" ")) {
            String[] pair = topic.split("=");
            counts.put(Uuid.fromString(pair[0]), Integer.parseInt(pair[1]));
        }
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        Set<Set<Uuid>> subscriptions = new HashSet<>();
        for (int i = 2; i < parts.length; i++) {
            String[] words = parts[i].split(" ");
            Set<Uuid> topics = new LinkedHashSet<>();
            if (!words[2].equals("-"))
                for (String topic : words[2].split("\\+")) topics.add(Uuid.fromString(topic));
            subscriptions.add(topics);
            Map<Uuid, Set<Integer>> assigned = partitions(words[3]);
            assigned.forEach((topic, set) -> set.forEach(
                partition -> owners.computeIfAbsent(topic, key -> new HashMap<>()).put(partition, words[0])));
            Optional<String> instance = words[1].equals("*") ? Optional.empty() : Optional.of(words[1]);
            members.put(words[0], new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), instance, topics, new Assignment(assigned)));
        }
        ConsumerGroupPartitionAssignor assignor = parts[0].startsWith("range") ? new RangeAssignor() : new UniformAssignor();
        SubscriptionType type = subscriptions.size() > 1 || parts[0].endsWith("!") ? SubscriptionType.HETEROGENEOUS : SubscriptionType.HOMOGENEOUS;
        GroupAssignment result = assignor.assign(new GroupSpecImpl(members, type, owners), new Describer(counts));
        List<String> found = new ArrayList<>();
        for (String member : new TreeSet<>(members.keySet())) {
            MemberAssignment own = result.members().get(member);
            found.add(member + " " + text(own == null ? Map.of() : own.partitions()));
        }
        return String.join(" | ", found);
    }

    private static Map<Uuid, Set<Integer>> partitions(String text) {
        Map<Uuid, Set<Integer>> found = new HashMap<>();
        if (text.equals("-")) return found;
        for (String topic : text.split("\\+")) {
            String[] pair = topic.split(":");
            List<Integer> list = new ArrayList<>();
            for (String partition : pair[1].split("\\.")) list.add(Integer.parseInt(partition));
            found.put(Uuid.fromString(pair[0]), new HashSet<>(list));
        }
        return found;
    }

    private static String text(Map<Uuid, Set<Integer>> partitions) {
        Map<String, String> sorted = new TreeMap<>();
        partitions.forEach((topic, set) -> {
            List<String> words = new ArrayList<>();
            for (Integer partition : new TreeSet<>(set)) words.add(partition.toString());
            if (!words.isEmpty()) sorted.put(topic.toString(), String.join(".", words));
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
