package tlsadvice

import (
	"errors"
	"strings"
	"testing"
)

func TestReason(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"ejected": "ejected",
		`connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`:                                       "dial tcp 127.0.0.1:1: connect: connection refused",
		`connection error: desc = "error reading server preface: EOF"`:                                                                                       "error reading server preface: EOF",
		`late; last: connection error: desc = "transport: authentication handshake failed: TLS of cluster \"c\": no", received prior goaway: code: NO_ERROR`: `late; last: authentication handshake failed: TLS of cluster "c": no, received prior goaway: code: NO_ERROR`,
	} {
		if got := Reason(text); got != want {
			t.Errorf("Reason of %s: %s, want %s", text, got, want)
		}
	}
}

func TestServer(t *testing.T) {
	t.Parallel()
	const wantsTLS, wantsCertificate = "as one does that wants TLS or mTLS", "wants a certificate of the client"
	texts := map[string]string{
		"eof":         "error reading server preface: EOF",
		"reset":       "error reading server preface: read tcp 127.0.0.1:1->127.0.0.1:2: read: connection reset by peer",
		"refused":     "dial tcp 127.0.0.1:2: connect: connection refused",
		"late":        "error reading server preface: i/o timeout",
		"certificate": "error reading server preface: remote error: tls: certificate required",
	}
	for _, tc := range []struct{ reports, want string }{
		{"eof", ""},
		{"eof eof", ""},
		{"eof reset eof", wantsTLS},
		{"eof eof eof eof", wantsTLS},
		{"eof eof refused eof", ""},
		{"eof eof late eof eof", ""},
		{"eof eof refused eof eof eof", wantsTLS},
		{"late late late", ""},
		{"ready eof eof eof eof", ""}, // a server that restarts
		{"eof eof ready eof eof eof eof", ""},
		{"certificate", wantsCertificate},
		{"ready certificate", wantsCertificate},
	} {
		var s Server
		got := ""
		for report := range strings.SplitSeq(tc.reports, " ") {
			if report == "ready" {
				s.Ready()
				continue
			}
			got = s.Failed(errors.New(texts[report]))
		}
		if got == "" != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.reports, got, tc.want)
		}
	}
}
