package grpcbridge_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/resolver/dns"

	"github.com/dynxds/dynxds/internal/grpcbridge"
)

func TestMinResolutionIntervalIsGRPCs(t *testing.T) {
	if got := grpcbridge.MinResolutionInterval(); got != 30*time.Second {
		t.Fatalf("the interval is %v at first, want gRPC's default, 30s", got)
	}
	defer dns.SetMinResolutionInterval(30 * time.Second)
	dns.SetMinResolutionInterval(7 * time.Second)
	if got := grpcbridge.MinResolutionInterval(); got != 7*time.Second {
		t.Errorf("the interval is %v, want 7s, which the program has set", got)
	}
}
