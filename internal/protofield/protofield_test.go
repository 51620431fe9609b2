package protofield_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/dynxds/dynxds/internal/protofield"
)

func TestNext(t *testing.T) {
	t.Parallel()
	varint := protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), 300)
	text := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "abc")
	fixed := protowire.AppendFixed64(protowire.AppendTag(nil, 9, protowire.Fixed64Type), 7)
	group := protowire.AppendGroup(protowire.AppendTag(nil, 2, protowire.StartGroupType), 2, varint)
	for _, tc := range []struct {
		name    string
		message []byte
		want    protofield.Field
		fault   bool
	}{
		{name: "varint", message: varint, want: protofield.Field{Number: 3, Kind: protowire.VarintType, Varint: 300}},
		{name: "bytes", message: text, want: protofield.Field{Number: 1, Kind: protowire.BytesType, Value: []byte("abc")}},
		{name: "fixed", message: fixed, want: protofield.Field{Number: 9, Kind: protowire.Fixed64Type}},
		{name: "group", message: group, want: protofield.Field{Number: 2, Kind: protowire.StartGroupType}},
		{name: "cut in the tag", message: []byte{0x80}, fault: true},
		{name: "cut in the value", message: text[:3], fault: true},
		{name: "field 0", message: []byte{0, 0}, fault: true},
		{name: "end of no group", message: []byte{0x14}, fault: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			rest := []byte("rest")
			got, left, err := protofield.Next(append(tc.message[:len(tc.message):len(tc.message)], rest...))
			if tc.fault {
				if _, _, err := protofield.Next(tc.message); err == nil {
					t.Errorf("Next(%x) gave no error", tc.message)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || string(left) != "rest" {
				t.Errorf("the rest is %q; the field differs (-want +got):\n%s", left, diff)
			}
		})
	}
}

func TestDeeper(t *testing.T) {
	t.Parallel()
	message := []byte(nil) // with as many messages within it as the loop has run
	for depth := range 50 {
		wrapped := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "some text")
		message = protowire.AppendBytes(protowire.AppendTag(wrapped, 2, protowire.BytesType), message)
		if !protofield.Deeper(message, depth-1) || protofield.Deeper(message, depth) {
			t.Errorf("a message with %d levels: deeper than %d: %v, than %d: %v", depth,
				depth-1, protofield.Deeper(message, depth-1), depth, protofield.Deeper(message, depth))
		}
	}
	if protofield.Deeper(nil, 0) || protofield.Deeper([]byte{0x80}, 0) {
		t.Error("an empty or a broken message is deep")
	}
}
