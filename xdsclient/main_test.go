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
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(unlessSilent{}, io.Discard, io.Discard))
	goleak.VerifyTestMain(m)
}

// unlessSilent writes to logged, but not what TestCheck has the clients log.
type unlessSilent struct{}

func (unlessSilent) Write(p []byte) (int, error) {
	if checkSilent.Load() {
		return len(p), nil
	}
	return logged.Write(p)
}

// logged is what the process has logged.
var logged = new(xdstest.Log)
