package resolver

import (
	"io"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/grpclog"
	grpcresolver "google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/dns"

	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestMain(m *testing.M) {
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(logged, io.Discard, io.Discard))
	grpcresolver.Register(names)
	dns.SetMinResolutionInterval(0)
	goleak.VerifyTestMain(m)
}

// logged is what the process has logged.
var logged = new(xdstest.Log)
