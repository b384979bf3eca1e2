import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.errors.RetriableException;

/**
 * Apache Kafka's generated classes as a filter: one request a line on stdin, one answer a line on stdout.
 *
 *   write CLASS VERSION JSON   -> bytes in hex
 *   read CLASS VERSION HEX     -> bytes in hex (written again, or ?), a tab, JSON
 *   default CLASS VERSION      -> bytes in hex of a message whose fields nobody set
 *   errors                     -> code:name:retriable for every error, separated by spaces
 *
 * An answer that starts with "!" is an exception.
 */
public final class Judge {
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final Map<String, Method> METHODS = new HashMap<>();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        String line;
        while ((line = in.readLine()) != null) {
            String answer;
            try {
                answer = answer(line.split(" ", 4));
            } catch (InvocationTargetException e) {
                answer = "!" + e.getCause();
            } catch (Throwable e) {
                answer = "!" + e;
            }
            out.print(answer.replace('\n', ' ').replace('\r', ' '));
            out.print('\n');
            out.flush();
        }
    }

    private static String answer(String[] words) throws Exception {
        if (words[0].equals("errors")) {
            StringBuilder text = new StringBuilder();
            for (Errors error : Errors.values()) {
                boolean retriable = error.exception() instanceof RetriableException;
                text.append(error.code()).append(':').append(error.name()).append(':').append(retriable).append(' ');
            }
            return text.toString().trim();
        }
        short version = Short.parseShort(words[2]);
        switch (words[0]) {
            case "write":
                return hex((Message) converter(words[1], "read").invoke(null, MAPPER.readTree(words[3]), version), version);
            case "read":
                Message message = fresh(words[1]);
                byte[] bytes = HexFormat.of().parseHex(words.length > 3 ? words[3] : "");
                ByteBuffer buffer = ByteBuffer.wrap(bytes);
                message.read(new ByteBufferAccessor(buffer), version);
                if (buffer.hasRemaining()) {
                    return "!" + buffer.remaining() + " bytes left";
                }
                JsonNode json = (JsonNode) converter(words[1], "write").invoke(null, message, version);
                return rewritten(message, version) + "\t" + MAPPER.writeValueAsString(json);
            case "default":
                return hex(fresh(words[1]), version);
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    /** Unknown tags that were not in order are read, but cannot be written. */
    private static String rewritten(Message message, short version) {
        try {
            return hex(message, version);
        } catch (RuntimeException e) {
            return "?";
        }
    }

    private static Message fresh(String name) throws Exception {
        return (Message) Class.forName(name).getDeclaredConstructor().newInstance();
    }

    private static String hex(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return HexFormat.of().formatHex(buffer.array(), 0, buffer.position());
    }

    private static Method converter(String name, String verb) throws Exception {
        Method found = METHODS.get(name + verb);
        if (found == null) {
            Class<?> type = Class.forName(name + "JsonConverter");
            found = verb.equals("read")
                ? type.getMethod("read", JsonNode.class, short.class)
                : type.getMethod("write", Class.forName(name), short.class);
            METHODS.put(name + verb, found);
        }
        return found;
    }
}
