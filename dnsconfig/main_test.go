package dnsconfig

import (
	"io"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/grpclog"

	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestMain(m *testing.M) {
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, warnings, io.Discard))
	goleak.VerifyTestMain(m)
}

// warnings are what the process has logged, but for what is only information.
var warnings = new(xdstest.Log)
