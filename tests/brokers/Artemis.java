import java.io.File;
import org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ;

/** An ActiveMQ Artemis for tests, run from source: java -cp 'lib/*' Artemis.java BROKER.XML, until it is killed. */
public class Artemis {
    public static void main(String[] arguments) throws Exception {
        new EmbeddedActiveMQ().setConfigResourcePath(new File(arguments[0]).toURI().toString()).start();
    }
}
