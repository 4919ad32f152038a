import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;

/** Reads a record set in hex from each line; writes how many records Kafka's classes find, or "refused". */
public class RecordsJudge {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(judge(HexFormat.of().parseHex(line)));
        }
    }

    private static String judge(byte[] set) {
        int count = 0;
        try {
            for (RecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(set)).batches()) {
                batch.ensureValid();
                for (Record ignored : batch) {
                    count++;
                }
            }
        } catch (RuntimeException refused) {
            return "refused";
        }
        return Integer.toString(count);
    }
}
