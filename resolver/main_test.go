package resolver

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/grpclog"
	grpcresolver "google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/dns"

	"github.com/dynxds/dynxds/internal/boundlog"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestMain(m *testing.M) {
	boundlog.LiftLimits()
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(logged, io.Discard, io.Discard))
	grpcresolver.Register(names)
	dns.SetMinResolutionInterval(0)
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("there is no DNS")
	}}
	goleak.VerifyTestMain(m)
}

// logged is what the process has logged.
var logged = new(xdstest.Log)
