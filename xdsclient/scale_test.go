package xdsclient

import (
	"fmt"
	"testing"
)

// Ten thousand watches that are started in one go are one request.
func TestTenThousandWatchesInOneGo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 10_000
		types, server := newTestTypes(), newScript(t)
		c := server.client()
		heard := &counter{}
		stops := make([]func(), n)
		for i := range stops {
			stops[i] = c.Watch(types.clusters, fmt.Sprintf("c%05d", i), heard)
		}
		s := server.stream()
		if got := len(s.request().GetResourceNames()); got != n {
			t.Fatalf("the first request has %d names, want %d", got, n)
		}
		s.quiet()
		for _, stop := range stops {
			stop()
		}
		s.gone()
	})
}
