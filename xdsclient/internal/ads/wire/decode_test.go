package wire

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// A message that is no response ends the stream; proto.Unmarshal would not take it either.
func TestMalformedResponse(t *testing.T) {
	t.Parallel()
	const bytesField = 2
	for _, p := range []struct {
		dialect Dialect
		layout  layout
	}{{Dialect{}, sotwLayout}, {Dialect{Incremental: true}, deltaLayout}} {
		for name, tc := range map[string]struct {
			message []byte
			want    string
		}{
			"empty":           {nil, "type_url is empty"},
			"no tag":          {[]byte{0xff}, "unexpected EOF"},
			"field too long":  {[]byte{byte(p.layout.resources)<<3 | bytesField, 5, 1}, "unexpected EOF"},
			"open group":      {[]byte{9<<3 | 3}, "unexpected EOF"},
			"version no UTF8": {[]byte{byte(p.layout.version)<<3 | bytesField, 1, 0xff}, "not valid UTF-8"},
			"nonce no UTF8":   {[]byte{byte(p.layout.nonce)<<3 | bytesField, 1, 0xff}, "not valid UTF-8"},
		} {
			_, err := p.dialect.Decode(tc.message)
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "malformed "+p.layout.message) {
				t.Errorf("%s, %s: got error %v, want %q", p.layout.message, name, err, tc.want)
			}
		}
	}
}

// Protocol Buffers, "Last One Wins" and unknown fields: a resource is read as
// proto.Unmarshal reads it, even if it comes in parts.
func TestUnusualEncoding(t *testing.T) {
	t.Parallel()
	field := func(number byte, value string) string {
		return string([]byte{number<<3 | 2, byte(len(value))}) + value
	}
	varint := func(number byte) string { return string([]byte{number << 3, 1}) }
	inner := varint(1) + field(1, "x") + field(1, "t") + field(2, "value") + varint(9)
	wrapped := field(1, typeurl.Wrapper) + field(2, varint(3)+field(3, "old")+field(2, field(1, "t"))+field(2, field(2, "in parts"))+field(3, "name"))
	message := field(byte(sotwLayout.typeURL), "other") + varint(byte(sotwLayout.typeURL)) + varint(byte(sotwLayout.resources)) +
		field(byte(sotwLayout.resources), inner) + field(byte(sotwLayout.resources), wrapped) + field(byte(sotwLayout.typeURL), "t") +
		field(byte(sotwLayout.resources), "\xff") + field(byte(sotwLayout.resources), field(1, typeurl.Wrapper)+field(2, field(2, "\xff")))
	r, err := Dialect{}.Decode([]byte(message))
	xdstest.NoError(t, err)
	var got []string
	for w := range r.Resources {
		text := string(w.Name) + "=" + string(w.Value)
		if w.Err != nil {
			text = w.Err.Error()
		}
		got = append(got, strings.ReplaceAll(text, "\u00a0", " "))
	}
	want := []string{
		"=value",
		"name=in parts",
		"malformed google.protobuf.Any: unexpected EOF",
		"resource: malformed google.protobuf.Any: unexpected EOF",
	}
	xdstest.Equal(t, "what was read", want, got)
}

// Parameters with other fields in between are not copied for each of them.
func TestScatteredParameters(t *testing.T) {
	const n = 10_000
	b := []byte(strings.Repeat("\x42\x00\x22\x00", n)) // dynamic_parameters, aliases
	copies := testing.AllocsPerRun(1, func() {
		if r := ParseWrapper(b, "t"); string(r.Parameters) != strings.Repeat("\x42\x00", n) {
			t.Errorf("the parameters have %d bytes, want %d", len(r.Parameters), 2*n)
		}
	})
	if copies > 100 {
		t.Errorf("%v allocations for %d parameters", copies, n)
	}
}

func TestReasonOfAResourceError(t *testing.T) {
	t.Parallel()
	code, err := (&ResourceError{code: 42, message: []byte("\xff odd")}).Reason()
	if code != codes.Unknown || err.Error() != "code 42: \uFFFD odd" {
		t.Errorf("got %v: %q, want UNKNOWN with the code and valid text", code, err)
	}
}

func TestMalformedResourceError(t *testing.T) {
	t.Parallel()
	for name, raw := range map[string]string{
		"resource_name: not valid UTF-8": "\x0a\x03\x0a\x01\xff",
		"resource_name: malformed envoy.service.discovery.v3.ResourceName: unexpected EOF": "\x0a\x01\x0a",
		"error_detail: malformed google.rpc.Status: unexpected EOF":                        "\x12\x01\x08",
		"malformed envoy.service.discovery.v3.ResourceError: unexpected EOF":               "\x0a",
	} {
		var e ResourceError
		err := e.merge([]byte(raw))
		if err == nil || strings.ReplaceAll(err.Error(), "\u00a0", " ") != name {
			t.Errorf("got error %v, want %s", err, name)
		}
	}
}

// All of a response counts but its nonce, wherever that is.
func TestOnlyTheNonceMayDiffer(t *testing.T) {
	t.Parallel()
	field := func(number protowire.Number, value string) []byte {
		return protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), value)
	}
	rest := func(fields ...[]byte) string {
		r, err := Dialect{}.Decode(slices.Concat(fields...))
		xdstest.NoError(t, err)
		return string(r.beforeNonce) + string(r.afterNonce)
	}
	version, typ := field(1, "1"), field(4, "type")
	want := string(slices.Concat(version, typ))
	for _, got := range []string{
		rest(version, typ), rest(field(5, "a"), version, typ), rest(version, field(5, "b"), typ),
		rest(version, typ, field(5, strings.Repeat("c", 1000))),
	} {
		xdstest.Equal(t, "what counts", want, got)
	}
	if got := rest(version, typ, field(6, "a"), field(5, "n")); got == want {
		t.Errorf("what counts is %q in spite of another field", got)
	}
}
