import java.io.*;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.utils.*;
import org.apache.kafka.storage.internals.log.*;

/** What Apache Kafka says to a produced batch: one case per line in, one verdict per line out. See README.md. */
public class KafkaOracle {
    static final LogValidator.MetricsRecorder NO_METRICS = new LogValidator.MetricsRecorder() {
        public void recordInvalidMagic() {}
        public void recordInvalidOffset() {}
        public void recordInvalidSequence() {}
        public void recordInvalidChecksums() {}
        public void recordNoKeyCompactedTopic() {}
    };

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (line.isBlank() || line.startsWith("#")) continue;
            System.out.println(verdict(line.trim().split(" ")));
            System.out.flush();
        }
    }

    /** name timestampType beforeMax afterMax compression compact maxBytes offset epoch now hex */
    static String verdict(String[] f) {
        try {
            byte[] bytes = f.length > 10 ? HexFormat.of().parseHex(f[10]) : new byte[0];
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes));
            ProduceRequest.validateRecords((short) 13, records);
            CompressionType source = CompressionType.NONE;
            int valid = 0;
            for (RecordBatch batch : records.batches()) {
                if (batch.baseOffset() != 0) throw new InvalidRecordException("base offset");
                if (batch.sizeInBytes() > Integer.parseInt(f[6])) throw new RecordTooLargeException("size");
                if (!batch.isValid()) throw new CorruptRecordException("crc");
                valid += batch.sizeInBytes();
                if (batch.compressionType() != CompressionType.NONE) source = batch.compressionType();
            }
            ByteBuffer trimmed = ByteBuffer.wrap(bytes, 0, valid).slice();
            records = MemoryRecords.readableRecords(trimmed);
            Compression target = f[4].equals("producer") ? Compression.of(source).build()
                : f[4].equals("uncompressed") ? Compression.NONE : Compression.of(f[4]).build();
            PrimitiveRef.LongRef offset = PrimitiveRef.ofLong(Long.parseLong(f[7]));
            LogValidator validator = new LogValidator(records, new TopicPartition("t", 0), new MockTime(Long.parseLong(f[9])),
                source, target, f[5].equals("true"), RecordBatch.MAGIC_VALUE_V2,
                f[1].equals("CreateTime") ? TimestampType.CREATE_TIME : TimestampType.LOG_APPEND_TIME,
                Long.parseLong(f[2]), Long.parseLong(f[3]), Integer.parseInt(f[8]), AppendOrigin.CLIENT);
            LogValidator.ValidationResult result =
                validator.validateMessagesAndAssignOffsets(offset, NO_METRICS, BufferSupplier.create());
            ByteBuffer out = result.validatedRecords().buffer();
            byte[] written = new byte[out.remaining()];
            out.duplicate().get(written);
            return f[0] + " 0 " + result.maxTimestampMs() + " " + (offset.value - 1)
                + " " + result.messageSizeMaybeChanged() + " " + hex(written);
        } catch (RecordValidationException e) {
            StringJoiner indexes = new StringJoiner(",");
            e.recordErrors().forEach(error -> indexes.add(String.valueOf(error.batchIndex)));
            return f[0] + " " + Errors.forException(e.invalidException()).code() + " records " + indexes;
        } catch (Throwable e) {
            return f[0] + " " + Errors.forException(e).code() + " " + e.getClass().getSimpleName();
        }
    }

    static String hex(byte[] bytes) throws Exception {
        return bytes.length <= 400 ? HexFormat.of().formatHex(bytes)
            : "sha256:" + HexFormat.of().formatHex(java.security.MessageDigest.getInstance("SHA-256").digest(bytes));
    }

    /** A clock that stands still. */
    static class MockTime implements Time {
        final long now;
        MockTime(long now) { this.now = now; }
        public long milliseconds() { return now; }
        public long nanoseconds() { return now * 1000000; }
        public void sleep(long ms) {}
        public void waitObject(Object o, java.util.function.Supplier<Boolean> condition, long deadline) {}
    }
}
