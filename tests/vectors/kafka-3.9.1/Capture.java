import java.nio.ByteBuffer;
import java.util.*;
import java.util.function.Supplier;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.utils.*;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.*;

/** Prints what Kafka's own classes make of record sets, one tab-separated case a line. */
public class Capture {
    static final long NOW = 1700000000000L;
    static final long T0 = 1500000000000L;

    static class Fixed implements Time {
        public long milliseconds() { return NOW; }
        public long nanoseconds() { return NOW * 1000000; }
        public long hiResClockMs() { return NOW; }
        public void sleep(long ms) { }
        public void waitObject(Object o, Supplier<Boolean> c, long d) { }
    }

    static class Quiet implements LogValidator.MetricsRecorder {
        public void recordInvalidMagic() { }
        public void recordInvalidOffset() { }
        public void recordInvalidSequence() { }
        public void recordInvalidChecksums() { }
        public void recordNoKeyCompactedTopic() { }
    }

    static String hex(ByteBuffer b) {
        byte[] raw = new byte[b.remaining()];
        b.duplicate().get(raw);
        return HexFormat.of().formatHex(raw);
    }

    static byte[] text(String s) { return s == null ? null : s.getBytes(); }

    static ByteBuffer set(String kind, int magic, CompressionType type, long[] times, long base,
                          TimestampType tt, long lat, boolean pid) {
        ByteBuffer buffer = ByteBuffer.allocate(1 << 16);
        MemoryRecordsBuilder b = MemoryRecords.builder(buffer, (byte) magic, Compression.of(type).build(),
            tt, base, lat, pid ? 4000L : -1L, (short) (pid ? 3 : -1), pid ? 17 : -1, false, -1);
        for (int i = 0; i < times.length; i++) {
            String key = i % 3 == 1 ? null : "key-" + i;
            String value = i % 4 == 3 ? null : "value-" + i + "-" + "abcdefghij".repeat(i % 5);
            Header[] headers = kind.contains("headers") && i % 2 == 0
                ? new Header[] {new RecordHeader("h" + i, text("content")), new RecordHeader("none", null)}
                : new Header[0];
            if (magic == 0)
                b.appendWithOffset(base + i, -1L, text(key), text(value));
            else
                b.appendWithOffset(base + i, times[i], text(key), text(value), headers);
        }
        ByteBuffer out = b.build().buffer();
        byte[] raw = new byte[out.remaining()];
        out.get(raw);
        return ByteBuffer.wrap(raw);
    }

    static void validate(String kind, ByteBuffer source, CompressionType sourceType, int toMagic,
                         CompressionType target, boolean lat, long before, long after) {
        String input = hex(source);
        ByteBuffer copy = ByteBuffer.wrap(HexFormat.of().parseHex(input));
        String head = String.join("\t", "produce", kind, input, "" + toMagic,
            "" + target.id, lat ? "1" : "0", "" + before, "" + after);
        try {
            LogValidator v = new LogValidator(MemoryRecords.readableRecords(copy), new TopicPartition("t", 0),
                new Fixed(), sourceType, Compression.of(target).build(), false, (byte) toMagic,
                lat ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME, before, after, 7,
                AppendOrigin.CLIENT, MetadataVersion.latestTesting());
            LogValidator.ValidationResult r = v.validateMessagesAndAssignOffsets(
                PrimitiveRef.ofLong(1000), new Quiet(), BufferSupplier.NO_CACHING);
            System.out.println(head + "\t" + hex(r.validatedRecords.buffer()) + "\t" + r.maxTimestampMs);
        } catch (RecordValidationException e) {
            StringBuilder where = new StringBuilder();
            e.recordErrors().forEach(x -> where.append(where.length() > 0 ? "," : "").append(x.batchIndex));
            System.out.println(head + "\t!" + e.invalidException().getClass().getSimpleName() + "\t" + where);
        } catch (Exception e) {
            System.out.println(head + "\t!" + e.getClass().getSimpleName() + "\t");
        }
    }

    static void down(String kind, ByteBuffer source, int toMagic, long firstOffset) {
        String input = hex(source);
        ByteBuffer out = (ByteBuffer) ((MemoryRecords) MemoryRecords.readableRecords(source.duplicate())
            .downConvert((byte) toMagic, firstOffset, new Fixed()).records()).buffer();
        System.out.println(String.join("\t", "fetch", kind, input, "" + toMagic, "" + firstOffset, hex(out)));
    }

    public static void main(String[] args) {
        long none = Long.MAX_VALUE;
        long[] rising = {T0, T0 + 1, T0 + 2, T0 + 3, T0 + 4};
        long[] mixed = {T0 + 9, -1, T0, T0 + 500, 0};
        CompressionType[] all = CompressionType.values();
        for (int magic = 0; magic < 3; magic++) {
            for (CompressionType type : all) {
                if (type == CompressionType.ZSTD && magic < 2) continue;
                for (int toMagic = 0; toMagic < 3; toMagic++) {
                    for (CompressionType target : new LinkedHashSet<>(List.of(type, CompressionType.NONE, CompressionType.GZIP))) {
                        if (target == CompressionType.ZSTD && toMagic < 2) continue;
                        for (boolean lat : new boolean[] {false, true})
                            validate("mixed", set("mixed", magic, type, mixed, 0, TimestampType.CREATE_TIME, -1, false),
                                type, toMagic, target, lat, none, none);
                    }
                }
            }
        }
        for (CompressionType type : all) {
            for (int magic = 1; magic < 3; magic++) {
                if (type == CompressionType.ZSTD && magic < 2) continue;
                for (long window : new long[] {NOW - T0 - 2, NOW - T0, 10})
                    validate("window", set("", magic, type, rising, 0, TimestampType.CREATE_TIME, -1, false),
                        type, magic, type, false, window, none);
                validate("future", set("", magic, type, new long[] {NOW + 5, NOW + 6, -1}, 0,
                    TimestampType.CREATE_TIME, -1, false), type, magic, type, false, none, 5);
            }
            validate("idempotent headers", set("headers", 2, type, mixed, 0, TimestampType.CREATE_TIME, -1, true),
                type, 2, type, false, none, none);
            validate("idempotent headers", set("headers", 2, type, rising, 0, TimestampType.CREATE_TIME, -1, true),
                type, 2, CompressionType.GZIP, true, none, none);
            validate("idempotent", set("", 2, type, rising, 0, TimestampType.CREATE_TIME, -1, true),
                type, 1, CompressionType.NONE, false, none, none);
            validate("no times", set("", 2, type, new long[] {-1, -1}, 0, TimestampType.CREATE_TIME, -1, false),
                type, 2, CompressionType.NONE, false, none, none);
            validate("wide times", set("", 2, type, new long[] {Long.MAX_VALUE, 0, -1, 1}, 0, TimestampType.CREATE_TIME, -1, false),
                type, 2, CompressionType.GZIP, false, none, none);
        }
        // A producer that numbers from elsewhere: base 3 inside, or an offset of 0 around.
        for (CompressionType type : new CompressionType[] {CompressionType.GZIP, CompressionType.LZ4}) {
            validate("offset 40", set("", 1, type, rising, 40, TimestampType.CREATE_TIME, -1, false), type, 1, type, false, none, none);
            ByteBuffer zero = set("", 1, type, rising, 0, TimestampType.CREATE_TIME, -1, false);
            zero.putLong(0, 0);
            validate("offset 0", zero, type, 1, type, false, none, none);
            ByteBuffer low = set("", 1, type, rising, 0, TimestampType.CREATE_TIME, -1, false);
            low.putLong(0, 2);
            validate("offset 2 of 5", low, type, 1, type, false, none, none);
        }
        for (int magic = 1; magic < 3; magic++) {
            for (CompressionType type : all) {
                if (type == CompressionType.ZSTD) continue;
                for (TimestampType tt : new TimestampType[] {TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME}) {
                    ByteBuffer stored = set(magic == 2 ? "headers" : "", magic, type, mixed, 200, tt, NOW, false);
                    for (int toMagic = 0; toMagic < magic; toMagic++)
                        for (long first : new long[] {0, 202})
                            down(tt.name, stored, toMagic, first);
                }
            }
        }
    }
}
