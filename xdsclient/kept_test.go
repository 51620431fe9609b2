package xdsclient

import (
	"bytes"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

// A large resource is not copied. The memory of small responses is used again, and a small resource must not
// keep a large response.
func TestALargeResourceIsNotCopied(t *testing.T) {
	t.Parallel()
	const large = 2 * transport.MaxPooled
	for name, tc := range map[string]struct {
		content, other int
		shared         bool
	}{
		"small":                       {1000, 0, false},
		"large":                       {large, 0, true},
		"in a response of many":       {large, large, false},
		"small in a response of many": {1000, large, false},
	} {
		types, k := newTestTypes(), newCore(t)
		k.c.Watch(types.clusters, "cluster-0", &counter{})
		k.answer()
		message := k.response(types, types.clusters, "1", "cluster-0="+strings.Repeat("x", tc.content), "cluster-1="+strings.Repeat("y", tc.other))
		k.push(message)
		raw := k.channel.typeState(types.clusters).subs.named([]byte("cluster-0")).payload.raw
		i := bytes.Index(message, raw)
		if len(raw) == 0 || i < 0 {
			t.Fatalf("%s: the resource has %d bytes that are not those of the response", name, len(raw))
		}
		if shared := &raw[0] == &message[i]; shared != tc.shared {
			t.Errorf("%s: the bytes are shared: %v", name, shared)
		}
	}
}
