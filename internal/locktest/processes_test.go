package locktest_test

const helperEnv = "LEASEHOLD_LOCKTEST_HELPER"

func helper(string) int { return 0 }
