package controlplane_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/mesh/controlplane"
)

func TestDelta_LargeResponsesAreSplit(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	s := startServer(t, controlplane.Options{MaxResponseSize: limit})
	big := strings.Repeat("x", 10<<10)
	want := map[string]bool{}
	var subscribe []string
	s.update(t, func(tx *controlplane.Tx) {
		for i := range 50 {
			name := fmt.Sprintf("r%d", i)
			tx.SetNamed(name, nil, wrapperspb.String(name+big))
			subscribe = append(subscribe, name)
			want[name] = true
		}
		tx.SetNamed("huge", nil, wrapperspb.String(strings.Repeat("x", 2*limit)))
		want["huge"] = true
		for i := range 20 {
			name := fmt.Sprintf("e%d", i)
			tx.SetError(custom, name, status.New(codes.Internal, big))
			subscribe = append(subscribe, name)
			want["!"+name+": Internal"] = true
		}
	})
	c := s.openDelta(t)
	subscribe = append(subscribe, "huge")
	for i := range 20 {
		name := fmt.Sprintf("missing-%d-%s", i, big)
		subscribe = append(subscribe, name)
		want["-"+name] = true
	}
	c.subscribe(custom, subscribe...)
	responses := 0
	for len(want) > 0 {
		r := c.next()
		responses++
		c.ack(r)
		if size := proto.Size(r.message); size > limit && len(r.content) > 1 {
			t.Errorf("a response of %d items has %d bytes, the limit is %d", len(r.content), size, limit)
		}
		for _, item := range r.content {
			if !want[item] {
				t.Fatalf("%.20q came twice or is not wanted", item)
			}
			delete(want, item)
		}
	}
	if responses < 16 || responses > 25 {
		t.Errorf("%d responses for about 1 MiB in parts of 64 KiB", responses)
	}
}

func TestDelta_CanBeRefused(t *testing.T) {
	t.Parallel()
	s := startServer(t, controlplane.Options{NoDelta: true})
	s.set(t, cluster("c"))
	if err := s.openDelta(t).end(); status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "StreamAggregatedResources") {
		t.Errorf("the stream ended with %v", err)
	}
	c := s.open(t)
	c.subscribe(cds)
	c.want(cds, "c")
	if got := s.control.Clients(); len(got) != 1 || got[0].Protocol != controlplane.ProtocolSotW {
		t.Errorf("clients: %+v", got)
	}
}
