import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.zip.CRC32;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;

/**
 * Reads a record set in hex from each line; writes how many records Kafka's classes find and the checksum of all
 * keys and values, or "refused" and why.
 */
public class RecordsJudge {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(judge(HexFormat.of().parseHex(line)));
        }
    }

    private static String judge(byte[] set) {
        int count = 0;
        CRC32 seen = new CRC32();
        try {
            for (RecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(set)).batches()) {
                batch.ensureValid();
                for (Record record : batch) {
                    count++;
                    seen.update(record.key());
                    seen.update(record.value());
                }
            }
        } catch (RuntimeException | StackOverflowError refused) {
            return "refused: " + refused.toString().replace('\n', ' ');
        }
        return count + " " + seen.getValue();
    }
}
