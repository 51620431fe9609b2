package e2e_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/dynxds/dynxds/internal/channels"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/testutils"
)

// ownService is a service name of the test's own, by which it finds its channel.
func ownService(t testing.TB) string {
	return strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))
}

// inspected returns the description of the channel to a service.
func inspected(t testing.TB, service string) inspect.Channel {
	t.Helper()
	for _, c := range channels.Inspect() {
		if c.Target == "xds:///"+service {
			return c
		}
	}
	t.Fatalf("no channel to %s is described", service)
	return inspect.Channel{}
}

// awaitInspect returns once a description is as wanted.
func awaitInspect[T any](t testing.TB, what string, describe func() T, wanted func(T) bool) T {
	t.Helper()
	ctx := testutils.Context(t)
	ticks := time.NewTicker(5 * time.Millisecond)
	defer ticks.Stop()
	for {
		d := describe()
		if wanted(d) {
			return d
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			text, _ := json.MarshalIndent(d, "", "  ")
			t.Fatalf("never: %s; but\n%s", what, text)
		}
	}
}

// awaitCluster is awaitInspect for a cluster of the channel to a service.
func awaitCluster(t testing.TB, what, service, name string, wanted func(inspect.Cluster) bool) inspect.Cluster {
	t.Helper()
	return awaitInspect(t, what, func() (c inspect.Cluster) {
		if source := inspected(t, service).Source; source != nil {
			c, _ = source.Cluster(testutils.Context(t), name)
		}
		return c
	}, wanted)
}
