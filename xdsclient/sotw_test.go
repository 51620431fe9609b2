package xdsclient

import (
	"strings"
	"testing"
)

// A message that is no DiscoveryResponse ends the stream; proto.Unmarshal would
// not take it either.
func TestSotWMalformedResponse(t *testing.T) {
	t.Parallel()
	const bytesField = 2
	for name, tc := range map[string]struct {
		message []byte
		want    string
	}{
		"empty":           {nil, "type_url is empty"},
		"no tag":          {[]byte{0xff}, "unexpected EOF"},
		"field too long":  {[]byte{byte(sotwLayout.resources)<<3 | bytesField, 5, 1}, "unexpected EOF"},
		"open group":      {[]byte{9<<3 | 3}, "unexpected EOF"},
		"version no UTF8": {[]byte{byte(sotwLayout.version)<<3 | bytesField, 1, 0xff}, "not valid UTF-8"},
	} {
		_, err := sotw{}.decode(tc.message)
		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "DiscoveryResponse") {
			t.Errorf("%s: got error %v, want %q", name, err, tc.want)
		}
	}
}

// Protocol Buffers, "Last One Wins" and unknown fields: a resource is read as
// proto.Unmarshal reads it, even if it comes in parts.
func TestSotWUnusualEncoding(t *testing.T) {
	t.Parallel()
	field := func(number byte, value string) string {
		return string([]byte{number<<3 | 2, byte(len(value))}) + value
	}
	varint := func(number byte) string { return string([]byte{number << 3, 1}) }
	inner := varint(1) + field(1, "x") + field(1, "t") + field(2, "value") + varint(9)
	wrapped := field(1, wrapperType) + field(2, varint(3)+field(3, "old")+field(2, field(1, "t"))+field(2, field(2, "in parts"))+field(3, "name"))
	message := field(byte(sotwLayout.typeURL), "other") + varint(byte(sotwLayout.typeURL)) + varint(byte(sotwLayout.resources)) +
		field(byte(sotwLayout.resources), inner) + field(byte(sotwLayout.resources), wrapped) + field(byte(sotwLayout.typeURL), "t") +
		field(byte(sotwLayout.resources), "\xff") + field(byte(sotwLayout.resources), field(1, wrapperType)+field(2, field(2, "\xff")))
	r, err := sotw{}.decode([]byte(message))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for w := range r.resources {
		text := string(w.name) + "=" + string(w.value)
		if w.err != nil {
			text = w.err.Error()
		}
		got = append(got, strings.ReplaceAll(text, "\u00a0", " "))
	}
	want := []string{
		"=value",
		"name=in parts",
		"malformed google.protobuf.Any: unexpected EOF",
		"resource: malformed google.protobuf.Any: unexpected EOF",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %q, want %q", got, want)
	}
}
