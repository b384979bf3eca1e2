package pipeline.lake;

import io.delta.storage.S3SingleDriverLogStore;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.s3a.S3AFileSystem;
import org.apache.hadoop.fs.s3a.S3AUtils;
import org.apache.hadoop.fs.s3a.impl.PutObjectOptions;
import org.apache.hadoop.io.IOUtils;
import software.amazon.awssdk.awscore.AwsRequestOverrideConfiguration;
import software.amazon.awssdk.core.exception.SdkException;
import software.amazon.awssdk.core.sync.RequestBody;
import software.amazon.awssdk.services.s3.S3Client;
import software.amazon.awssdk.services.s3.model.PutObjectRequest;
import software.amazon.awssdk.services.s3.model.S3Exception;

/**
 * The entries of a Delta log on S3, each created only if it is absent: PutObject with `If-None-Match: *`. Delta's own
 * class for S3 looks first and writes then, so a second driver can overwrite what the first one has committed.
 *
 * The request goes through the client and the request factory of S3A: endpoint, credentials and encryption are those
 * of `fs.s3a.*`. object_store.py compiles this file in the driver, with the compiler that Spark uses for queries; that
 * compiler knows no lambdas and infers no types, hence the casts.
 */
public class ExclusiveLogStore extends S3SingleDriverLogStore {
    /** So often S3 may answer that another request for the same object is under way (409). */
    private static final int ATTEMPTS = 20;

    public ExclusiveLogStore(Configuration configuration) {
        super(configuration);
    }

    public void write(Path path, Iterator actions, Boolean overwrite, Configuration configuration) throws IOException {
        if (overwrite.booleanValue()) {
            super.write(path, actions, overwrite, configuration);
            return;
        }
        StringBuilder text = new StringBuilder();
        while (actions.hasNext()) {
            text.append((String) actions.next()).append('\n');
        }
        if (!create(path, text.toString(), configuration)) {
            throw new FileAlreadyExistsException(path.toString());
        }
    }

    /**
     * Creates an object; false if there is one already. Two writers never have the same text: a commit of Delta has an
     * id, a lease the id of its driver.
     */
    public static boolean create(Path path, String text, Configuration configuration) throws IOException {
        S3AFileSystem files = (S3AFileSystem) path.getFileSystem(configuration);
        byte[] content = text.getBytes(StandardCharsets.UTF_8);
        AwsRequestOverrideConfiguration onlyIfAbsent = ((AwsRequestOverrideConfiguration.Builder)
            AwsRequestOverrideConfiguration.builder().putHeader("If-None-Match", "*")).build();
        PutObjectRequest.Builder builder = files.createStoreContext().getRequestFactory().newPutObjectRequestBuilder(
            files.pathToKey(path), PutObjectOptions.keepingDirs(), (long) content.length, false);
        builder.overrideConfiguration(onlyIfAbsent);
        PutObjectRequest request = (PutObjectRequest) builder.build();
        S3Client client = files.getS3AInternals().getAmazonS3Client("create if absent");
        for (int attempt = 1;; attempt++) {
            try {
                client.putObject(request, RequestBody.fromBytes(content));
                return true;
            } catch (SdkException error) {
                int status = error instanceof S3Exception ? ((S3Exception) error).statusCode() : 0;
                if (status == 412) {
                    // The client repeats a request whose answer it did not get: then it is refused for its own object.
                    return Arrays.equals(content, read(files, path));
                }
                if (status != 409 || attempt == ATTEMPTS) {
                    throw S3AUtils.translateException("create if absent", path, error);
                }
            }
        }
    }

    private static byte[] read(S3AFileSystem files, Path path) throws IOException {
        FSDataInputStream stream = files.open(path);
        try {
            return IOUtils.readFullyToByteArray(stream);
        } finally {
            stream.close();
        }
    }
}
