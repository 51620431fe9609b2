package dynxds_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// A program whose bootstrap in memory is nil, maybe since it ignored an error, does not get that
// of the environment, nor DNS.
func TestABootstrapInMemoryThatIsNil(t *testing.T) {
	const want = "in-memory bootstrap: not JSON"
	t.Setenv("GRPC_XDS_BOOTSTRAP", "")
	t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", "")
	if err := dynxds.SetConstraints(dynparam.ByType{}, dynxds.WithBootstrap(nil)); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("SetConstraints: got %v, want an error with %q", err, want)
	}
	cc, err := grpc.NewClient("xds:///echo.invalid",
		append(dynxds.DialOptions(dynxds.WithBootstrap(nil)), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	xdstest.NoError(t, err)
	defer cc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := healthpb.NewHealthClient(cc).Check(ctx, new(healthpb.HealthCheckRequest)); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("RPC: got %v, want an error with %q", err, want)
	}
}
