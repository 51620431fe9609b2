package dpdswrapper_test

import (
	"io"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/grpclog"

	"github.com/dynxds/dynxds/internal/boundlog"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestMain(m *testing.M) {
	boundlog.LiftLimits()
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, logged, io.Discard))
	goleak.VerifyTestMain(m)
}

// logged is the warnings that the process has logged.
var logged = new(xdstest.Log)
