// Driver of Apache Kafka's Java clients, for 0.8.2 to 4.x (see lines.py for the protocol).
// What differs between generations is in classes of the same name, chosen at compilation by
// environments.py. Arguments: the client's version, the broker's address.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;

final class Driver {
    static String server;

    private static void run(String operation, Map<String, Object> command) throws Exception {
        switch (operation) {
            case "produce":
                Producing.produce(command);
                break;
            case "send":
                Sending.send(command);
                break;
            case "consume":
                Consuming.consume(command);
                break;
            case "find":
                Consuming.find(command);
                break;
            case "join":
                Grouping.join(command);
                break;
            case "poll":
                Grouping.poll(command);
                break;
            case "rewind":
                Grouping.rewind(command);
                break;
            case "leave":
                Grouping.leave();
                break;
            case "commit":
                Offsets.commit(command);
                break;
            case "committed":
                Offsets.committed(command);
                break;
            case "admin":
                try {
                    Lines.say(Administration.run(command));
                } catch (java.util.concurrent.ExecutionException error) {
                    Lines.say("error", Lines.failure(error.getCause()));
                }
                break;
            case "transaction":
                Lines.say(Transactions.run(command));
                break;
            default:
                throw new IllegalArgumentException(operation);
        }
    }

    public static void main(String[] arguments) throws Exception {
        server = arguments[1];
        Lines.say("ready", "kafka-clients " + arguments[0]);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            @SuppressWarnings("unchecked")
            Map<String, Object> command = (Map<String, Object>) Json.parse(line);
            String operation = (String) command.get("op");
            try {
                run(operation, command);
            } catch (Exception error) {
                error.printStackTrace();
                Lines.say("fatal", error.toString());
            }
            Lines.say("done", operation);
        }
        System.exit(0);
    }
}
