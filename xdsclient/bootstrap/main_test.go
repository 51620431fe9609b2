package bootstrap

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

// logged is what the process has logged as warnings or errors.
var logged = new(xdstest.Log)

// servers is the least a bootstrap has to have, to be followed by further keys.
const servers = `"xds_servers": [{"server_uri": "dns:///xds.example.com:443", "channel_creds": [{"type": "insecure"}]}]`

// mustParse parses a bootstrap that is right.
func mustParse(t testing.TB, text string) *Config {
	t.Helper()
	c, err := Parse("test", []byte(text))
	xdstest.NoError(t, err)
	return c
}
