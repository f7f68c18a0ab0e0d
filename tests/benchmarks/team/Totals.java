package team;

import java.nio.file.Files;
import java.nio.file.Paths;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SparkSession;

public class Totals {
  public static void main(String[] args) throws Exception {
    SparkSession spark = SparkSession.builder().appName("totals of " + args[0]).getOrCreate();
    Dataset rows = spark.read().parquet(args[1] + "/tables/" + args[0]);
    rows.createOrReplaceTempView("rows");
    String total = spark.sql("select sum(amount) as amount from rows").toJSON().first().toString();
    Files.write(Paths.get(args[1], new String[] {"totals_" + args[0] + ".json"}), total.getBytes(), new java.nio.file.OpenOption[0]);
    System.out.println(total + " " + Rules.plus(1));
    spark.stop();
  }
}
