package interop_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	switch os.Getenv(childVariable) {
	case bothSchemesChild, dialOnlyChild, dialOptionsChild, someDialOptionsChild, registerChild:
		os.Exit(child())
	case benchChild:
		os.Exit(runBenchProgram())
	}
	goleak.VerifyTestMain(m)
}
