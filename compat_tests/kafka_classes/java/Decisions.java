// Apache Kafka's StandardAuthorizer: ACLs come and go, and in between it is asked.

package pykbroker;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

final class Decisions {
    private Decisions() {}

    // For each question of the steps [allowed, the line of kafka.authorizer.logger].
    static List<Object> apply(JsonNode request) throws Exception {
        List<Object> found = new ArrayList<>();
        Map<String, Object> configs = new HashMap<>();
        request.get("configs").properties().forEach(each -> configs.put(each.getKey(), each.getValue().asText()));
        try (StandardAuthorizer authorizer = new StandardAuthorizer()) {
            authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
            authorizer.configure(configs);
            authorizer.completeInitialLoad();
            for (JsonNode step : request.get("steps")) {
                switch (step.get(0).asText()) {
                    case "add":
                        authorizer.addAcl(Uuid.fromString(step.get(1).asText()), acl(step.get(2)));
                        break;
                    case "remove":
                        authorizer.removeAcl(Uuid.fromString(step.get(1).asText()));
                        break;
                    default:
                        found.add(ask(authorizer, step));
                }
            }
        }
        return found;
    }

    private static StandardAcl acl(JsonNode fields) {
        return new StandardAcl(
            ResourceType.fromCode((byte) fields.get(0).asInt()),
            fields.get(1).asText(),
            PatternType.fromCode((byte) fields.get(2).asInt()),
            fields.get(3).asText(),
            fields.get(4).asText(),
            AclOperation.fromCode((byte) fields.get(5).asInt()),
            AclPermissionType.fromCode((byte) fields.get(6).asInt()));
    }

    private static List<Object> ask(StandardAuthorizer authorizer, JsonNode step) throws Exception {
        String[] principal = step.get(1).asText().split(":", 2);
        Asker asker = new Asker(
            new KafkaPrincipal(principal[0], principal[1]), InetAddress.getByName(step.get(2).asText()));
        AclOperation operation = AclOperation.fromCode((byte) step.get(3).asInt());
        ResourceType type = ResourceType.fromCode((byte) step.get(4).asInt());
        if (step.get(0).asText().equals("some")) {
            AuthorizationResult result = authorizer.authorizeByResourceType(asker, operation, type);
            return List.of(result == AuthorizationResult.ALLOWED, "");
        }
        ResourcePattern resource = new ResourcePattern(type, step.get(5).asText(), PatternType.LITERAL);
        PrintStream log = System.err;
        ByteArrayOutputStream line = new ByteArrayOutputStream();
        System.setErr(new PrintStream(line, true, StandardCharsets.UTF_8));
        try {
            List<Action> actions = List.of(new Action(operation, resource, 1, true, true));
            AuthorizationResult result = authorizer.authorize(asker, actions).get(0);
            return List.of(result == AuthorizationResult.ALLOWED, line.toString(StandardCharsets.UTF_8));
        } finally {
            System.setErr(log);
        }
    }

    private record Asker(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        @Override
        public String listenerName() {
            return "PLAINTEXT";
        }

        @Override
        public SecurityProtocol securityProtocol() {
            return SecurityProtocol.PLAINTEXT;
        }

        @Override
        public int requestType() {
            return 0;
        }

        @Override
        public int requestVersion() {
            return 9;
        }

        @Override
        public String clientId() {
            return "client";
        }

        @Override
        public int correlationId() {
            return 1;
        }
    }
}
