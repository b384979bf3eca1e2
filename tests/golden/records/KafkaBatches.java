import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;

/** Batches made by Apache Kafka's builder. See README.md. */
public class KafkaBatches {
    static final long NOW = 1700000000000L;

    public static void main(String[] args) {
        for (CompressionType type : CompressionType.values()) {
            Compression codec = Compression.of(type).build();
            show("records-" + type.name, MemoryRecords.withRecords(RecordBatch.MAGIC_VALUE_V2, 1000, codec,
                TimestampType.CREATE_TIME, 77, (short) 3, 12, 5, false, records(10)));
            show("many-" + type.name, MemoryRecords.withRecords(RecordBatch.MAGIC_VALUE_V2, 0, codec,
                TimestampType.CREATE_TIME, records(300)));
        }
        show("transactional", MemoryRecords.withTransactionalRecords(5L, Compression.NONE, 77L, (short) 3, 12, 6,
            records(3)));
        ByteBuffer buffer = ByteBuffer.allocate(1000);
        MemoryRecordsBuilder builder = MemoryRecords.builder(buffer, RecordBatch.MAGIC_VALUE_V2, Compression.NONE,
            TimestampType.LOG_APPEND_TIME, 9L, NOW + 99);
        for (SimpleRecord record : records(3)) builder.append(record);
        show("append-time", builder.build());
        show("commit", MemoryRecords.withEndTransactionMarker(15, NOW, 4, 77L, (short) 3,
            new EndTransactionMarker(ControlRecordType.COMMIT, 21)));
        show("abort", MemoryRecords.withEndTransactionMarker(15, NOW, 4, 77L, (short) 3,
            new EndTransactionMarker(ControlRecordType.ABORT, 21)));
        show("leader-change", MemoryRecords.withLeaderChangeMessage(3, NOW, 8, ByteBuffer.allocate(500),
            new LeaderChangeMessage().setVersion((short) 0).setLeaderId(1)));
        show("snapshot-header", MemoryRecords.withSnapshotHeaderRecord(0, NOW, 8, ByteBuffer.allocate(500),
            new SnapshotHeaderRecord().setVersion((short) 0).setLastContainedLogTimestamp(5)));
        show("snapshot-footer", MemoryRecords.withSnapshotFooterRecord(6, NOW, 8, ByteBuffer.allocate(500),
            new SnapshotFooterRecord().setVersion((short) 0)));
        show("kraft-version", MemoryRecords.withKRaftVersionRecord(1, NOW, 8, ByteBuffer.allocate(500),
            new KRaftVersionRecord().setVersion((short) 0).setKRaftVersion((short) 1)));
        show("kraft-voters", MemoryRecords.withVotersRecord(2, NOW, 8, ByteBuffer.allocate(500),
            new VotersRecord().setVersion((short) 0)));
    }

    static SimpleRecord[] records(int count) {
        SimpleRecord[] records = new SimpleRecord[count];
        for (int i = 0; i < count; i++) {
            Header[] headers = new Header[i % 3];
            for (int h = 0; h < headers.length; h++)
                headers[h] = new RecordHeader("h\u00e9" + h, h == 1 ? null : new byte[i]);
            records[i] = new SimpleRecord(NOW + (i % 2 == 0 ? i * 100L : -i), i % 4 == 0 ? null : ("key" + i).getBytes(),
                i % 5 == 4 ? null : "value ".repeat(i % 20).getBytes(), headers);
        }
        return records;
    }

    static void show(String name, MemoryRecords records) {
        ByteBuffer buffer = records.buffer();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        System.out.println(name + " => " + HexFormat.of().formatHex(bytes));
    }
}
