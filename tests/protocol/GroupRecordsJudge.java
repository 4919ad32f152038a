// Reads lines "kind hex", decodes each record of __consumer_offsets with Kafka's own classes, encodes it again and
// prints the hex; for "hash" the partition of fifty that Kafka keeps the group in.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.coordinator.group.generated.GroupMetadataKey;
import org.apache.kafka.coordinator.group.generated.GroupMetadataValue;
import org.apache.kafka.coordinator.group.generated.OffsetCommitKey;
import org.apache.kafka.coordinator.group.generated.OffsetCommitValue;

public class GroupRecordsJudge {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            byte[] data = HexFormat.of().parseHex(words[1]);
            System.out.println(words[0].equals("hash") ? partition(data) : again(words[0], data));
        }
    }

    private static String partition(byte[] group) {
        return String.valueOf(Utils.abs(new String(group, StandardCharsets.UTF_8).hashCode()) % 50);
    }

    private static String again(String kind, byte[] data) {
        ApiMessage message = switch (kind) {
            case "offset-key" -> new OffsetCommitKey();
            case "group-key" -> new GroupMetadataKey();
            case "offset" -> new OffsetCommitValue();
            default -> new GroupMetadataValue();
        };
        ByteBuffer given = ByteBuffer.wrap(data);
        short version = given.getShort();
        message.read(new ByteBufferAccessor(given), version);
        ByteBuffer written = MessageUtil.toVersionPrefixedByteBuffer(version, message);
        byte[] bytes = new byte[written.remaining()];
        written.get(bytes);
        return given.hasRemaining() ? "left over" : HexFormat.of().formatHex(bytes);
    }
}
