package xdsclient

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// Ten thousand watches that are started in one go are one request.
func TestTenThousandWatchesInOneGo(t *testing.T) {
	(&transcriptTest{over: "SotW", steps: "hold", then: func(x *transcript) {
		const n = 10_000
		stops := make([]func(), n)
		request := "req"
		for i := range stops {
			name := fmt.Sprintf("c%05d", i)
			stops[i], request = x.c.Watch(x.types.clusters, name, &counter{}), request+" "+name
		}
		x.do(x.c, "connect")
		synctest.Wait()
		xdstest.Equal(t, "requests", []string{"stream", request}, x.events())
		x.c.Batch(func() {
			for _, stop := range stops {
				stop()
			}
		})
		x.run("wait 1s -> closed")
	}}).run(t)
}
