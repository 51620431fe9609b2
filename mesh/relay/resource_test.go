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
		bytes                 []byte
		envelope, name, fault string
	}{
		{bytes: cluster, name: "c"},
		{bytes: cluster, envelope: "other", name: "other"},
		{bytes: number, envelope: "c", name: "c"},
		{bytes: nil, envelope: "c", name: "c"},
		{bytes: cluster[:len(cluster)-1], envelope: "c", name: "c", fault: "malformed message: unexpected EOF"},
		{bytes: number, fault: "it is not wrapped, and has no name in field 1"},
		{bytes: binary, fault: "it is not wrapped, and has no name in field 1"},
	} {
		message := &anypb.Any{TypeUrl: typeurl.Cluster, Value: test.bytes}
		name, value, err := newType(typeurl.Cluster).Decode(message, xdsclient.DecodeOptions{Envelope: xdsclient.Envelope{Name: test.envelope}})
		fault := ""
		if err != nil {
			fault = err.Error()
		}
		if name != test.name || fault != test.fault {
			t.Errorf("%q in the envelope of %q: got the name %q and the error %q, want %q and %q", test.bytes, test.envelope, name, fault, test.name, test.fault)
		}
		if r, ok := value.(*resource); err == nil && (!ok || r.message != message) {
			t.Errorf("%q in the envelope of %q: got %v, want the message", test.bytes, test.envelope, value)
		}
	}
}
