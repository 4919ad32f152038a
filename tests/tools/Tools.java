import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.InputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Scanner;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs the mains of Apache Kafka's tools one after another in one machine, for starting one takes a second.
 *
 * Each line of standard input is a command: fields separated by tabs, of which the first is a path P, the second
 * a class, the others its arguments. Standard input of the command is P.in if there is one; what it writes
 * goes to P.out and P.err. Its exit status is answered as a line of its own on standard output.
 */
public class Tools {
    static final class Exited extends Error {
        Exited() {
            super(null, null, false, false);
        }
    }

    static volatile Integer status;
    static final List<Runnable> hooks = new ArrayList<>(); // what a tool does when its machine ends

    static void exit(int code, String message) {
        if (status == null) {
            status = code; // a tool that catches everything exits once more
            if (message != null) System.err.println(message);
        }
        throw new Exited();
    }

    public static void main(String[] none) throws Exception {
        Exit.setExitProcedure(Tools::exit);
        Exit.setHaltProcedure(Tools::exit);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        PrintStream answers = System.out;
        Scanner commands = new Scanner(System.in, "UTF-8");
        while (commands.hasNextLine()) {
            String[] fields = commands.nextLine().split("\t", -1);
            int code = run(fields[0], fields[1], Arrays.copyOfRange(fields, 2, fields.length));
            answers.println(code);
            answers.flush();
        }
    }

    static int run(String place, String name, String[] arguments) throws Exception {
        Path in = Paths.get(place + ".in");
        InputStream given = Files.exists(in) ? new FileInputStream(in.toFile()) : InputStream.nullInputStream();
        PrintStream out = new PrintStream(new FileOutputStream(place + ".out"), true, "UTF-8");
        PrintStream err = new PrintStream(new FileOutputStream(place + ".err"), true, "UTF-8");
        status = null;
        System.setIn(given);
        System.setOut(out);
        System.setErr(err);
        try {
            Class<?> tool = Class.forName(name);
            forget(tool);
            scala.Console$.MODULE$.withOut(out, () -> scala.Console$.MODULE$.withErr(err, () -> {
                start(tool, arguments);
                return null;
            }));
        } catch (Throwable error) {
            if (status == null) {
                status = 1; // as Java does for an exception that leaves main
                error.printStackTrace(err);
            }
        } finally {
            hooks.forEach(Runnable::run);
            hooks.clear();
            out.close();
            err.close();
        }
        return status == null ? 0 : status;
    }

    static void start(Class<?> tool, String[] arguments) {
        try {
            tool.getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException error) {
            if (error.getCause() instanceof Error) throw (Error) error.getCause();
            throw new RuntimeException(error.getCause());
        } catch (ReflectiveOperationException error) {
            throw new RuntimeException(error);
        }
    }

    /** The console consumer counts for as long as its machine lives. */
    static void forget(Class<?> tool) throws Exception {
        for (java.lang.reflect.Field field : tool.getDeclaredFields()) {
            if (field.getName().equals("messageCount")) {
                field.setAccessible(true);
                field.setInt(null, 0);
            }
        }
    }
}
