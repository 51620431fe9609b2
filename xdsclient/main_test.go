package xdsclient

import (
	"io"
	"os"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/grpclog"

	"github.com/dynxds/dynxds/internal/boundlog"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestMain(m *testing.M) {
	if os.Getenv(floodEnv) == "" {
		boundlog.LiftLimits()
	}
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(logged, io.Discard, io.Discard))
	goleak.VerifyTestMain(m)
}

// logged is what the process has logged.
var logged = new(xdstest.Log)
