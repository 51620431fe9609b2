package xdsclient

import (
	"testing"

	"github.com/dynxds/dynxds/internal/bounds"
)

// A response is not more than its bytes while it is worked on.
func FuzzHandle(f *testing.F) {
	cores := map[bool]*core{false: newCore(f), true: newCore(f, "delta")}
	add := func(incremental bool, kind string, words ...string) {
		types := newTestTypes()
		typ := types.clusters
		if kind == "e" {
			typ = types.endpoints
		}
		f.Add(incremental, cores[incremental].response(types, typ, "1", words...))
	}
	add(false, "c", "cluster-0="+content(0), "cluster-1=x", "cluster-2="+content(2))
	add(false, "c", "cluster-0="+content(0), "cluster-1=panic")
	add(false, "e", "cluster-0!x")
	add(false, "c")
	add(false, "c", "cluster-1?NotFound/x", "?NotFound/x")
	add(false, "c", "cluster-1@7=", "e:b@7=", "cluster-2@1~")
	add(true, "c", "cluster-1@2=x", "-cluster-2", "-u")
	add(true, "c", "cluster-1@1~", "x|cluster-2|cluster-1@1=", "-x")
	add(true, "c", "cluster-1?NotFound/x", "cluster-2?PermissionDenied/x", "cluster-0?99/\n", "cluster-0@!x")
	f.Fuzz(func(t *testing.T, incremental bool, message []byte) {
		types := newTestTypes()
		k := newCore(t)
		if incremental {
			k = newCore(t, "delta")
		}
		k.watchClusters(types, 3)
		k.answer()
		k.push(k.clusters(types, "", 0, 2, content)) // the third stays unknown
		before := k.c.Stats()
		k.answer()
		for i := range 2 { // the second time it may be a repetition
			accepted, d, err := k.channel.receive(message)
			if d == nil {
				if accepted && i == 0 {
					t.Fatal("accepted without a delivery")
				}
				continue
			}
			if err != nil {
				t.Fatalf("a delivery beside error %v", err)
			}
			<-d
			k.channel.delivered()
			k.channel.reading()
			if sent := k.answer(); sent == 0 || sent > bounds.NACKText+4<<10 {
				t.Fatalf("the answer has %d bytes", sent)
			}
		}
		// Whatever came, the next good response counts.
		k.push(k.clusters(types, "final", 0, 3, content))
		after := k.c.Stats()
		if after.Responses <= before.Responses {
			t.Fatal("a good response was not counted")
		}
		for s := range k.channel.types[0].subs.all() {
			if s.resource.state() != StateACKed || s.resource.payload == nil {
				t.Fatalf("%s is in state %v at the end", s.resource.key.name, s.resource.state())
			}
		}
	})
}
