// From JSON to the values of Apache Kafka's classes, and back.

package pykbroker;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

public final class Values {
    private static final MetadataRecordSerde SERDE = new MetadataRecordSerde();

    private Values() {}

    public static List<Integer> ints(JsonNode array) {
        List<Integer> found = new ArrayList<>(array.size());
        for (JsonNode value : array) found.add(value.asInt());
        return found;
    }

    public static int[] intArray(JsonNode array) {
        int[] found = new int[array.size()];
        for (int i = 0; i < found.length; i++) found[i] = array.get(i).asInt();
        return found;
    }

    public static Uuid[] uuids(JsonNode array) {
        Uuid[] found = new Uuid[array.size()];
        for (int i = 0; i < found.length; i++) found[i] = Uuid.fromString(array.get(i).asText());
        return found;
    }

    public static List<String> texts(Collection<Uuid> ids) {
        List<String> found = new ArrayList<>(ids.size());
        for (Uuid id : ids) found.add(id.toString());
        return found;
    }

    // A record of the metadata log as the framed bytes of its value, in hex.
    public static String hex(ApiMessageAndVersion record) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(SERDE.recordSize(record, cache));
        SERDE.write(record, cache, new ByteBufferAccessor(buffer));
        return HexFormat.of().formatHex(buffer.array());
    }

    public static ApiMessageAndVersion record(String hex) {
        byte[] value = HexFormat.of().parseHex(hex);
        return SERDE.read(new ByteBufferAccessor(ByteBuffer.wrap(value)), value.length);
    }
}
