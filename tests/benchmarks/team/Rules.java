package team;

public class Rules {
  public static long plus(long number) {
    return number + 2;
  }
}
