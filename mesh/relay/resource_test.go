package relay

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/xdsclient"
)

// Bytes that are no message are rejected here: those to whom they would be passed on in SotW could not
// tell which resource they reject. What is in the fields of a message is their business.
func TestDecode(t *testing.T) {
	t.Parallel()
	cluster := xdsmsg.Any(xdsmsg.EDSCluster("c", "")).GetValue()
	number := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 7)
	binary := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "\xff")
	for _, test := range []struct {
		bytes []byte
		fault string
	}{
		{bytes: cluster},
		{bytes: number},
		{bytes: binary},
		{bytes: nil},
		{bytes: cluster[:len(cluster)-1], fault: "malformed message: unexpected EOF"},
	} {
		message := &anypb.Any{TypeUrl: typeurl.Cluster, Value: test.bytes}
		value, err := newType(typeurl.Cluster).Decode(message, xdsclient.DecodeOptions{Envelope: xdsclient.Envelope{Name: "c"}})
		fault := ""
		if err != nil {
			fault = err.Error()
		}
		if fault != test.fault {
			t.Errorf("%q: got the error %q, want %q", test.bytes, fault, test.fault)
		}
		if r, ok := value.(*resource); err == nil && (!ok || r.message != message) {
			t.Errorf("%q: got %v, want the message", test.bytes, value)
		}
	}
}
