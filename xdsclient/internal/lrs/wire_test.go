package lrs

import (
	"testing"

	loadpb "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// FuzzOrder: whatever a server sends, the interval has its floor.
func FuzzOrder(f *testing.F) {
	f.Add([]byte{})
	f.Add(marshal(f, &loadpb.LoadStatsResponse{Clusters: []string{"a"}, LoadReportingInterval: durationpb.New(-1)}))
	f.Add(marshal(f, &loadpb.LoadStatsResponse{SendAllClusters: true, LoadReportingInterval: &durationpb.Duration{Seconds: 1 << 60, Nanos: -7}}))
	f.Fuzz(func(t *testing.T, message []byte) {
		o, err := decodeOrder(message)
		if err != nil {
			return
		}
		if o.interval < MinInterval || o.String() == "" {
			t.Errorf("%v is no order", o)
		}
	})
}
