package statefulsession

import (
	"encoding/base64"
	"testing"

	"google.golang.org/grpc/metadata"
)

func encoded(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// gRFC A60, "Include Cluster Name in the Cookie"; gRFC A61, "Changes to Stateful
// Session Affinity".
func TestDecodeCookie(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		text string
		want session
	}{
		{"10.0.0.1:80;cluster:c", session{"10.0.0.1:80", "c"}},
		{"10.0.0.1:80,[::1]:80;cluster:c", session{"10.0.0.1:80,[::1]:80", "c"}},
		{"206.12.3.6:8080;cluster:cloud-internal-istio:cloud_mp_635862331669_807571734533927564", session{"206.12.3.6:8080", "cloud-internal-istio:cloud_mp_635862331669_807571734533927564"}},
		{"10.0.0.1:80", session{"10.0.0.1:80", ""}},
		{"10.0.0.1:80;cluster_specifier_plugin:p", session{"10.0.0.1:80", "cluster_specifier_plugin:p"}},
		{"10.0.0.1:80;plugin:c", session{"10.0.0.1:80", ""}},
		{"10.0.0.1:80;", session{"10.0.0.1:80", ""}},
		{"host.example:80;cluster:c", session{"host.example:80", "c"}},
	} {
		value := encoded(tc.text)
		for _, v := range []string{value, base64.RawStdEncoding.EncodeToString([]byte(tc.text))} {
			if got, err := decode(v); err != nil || got != tc.want {
				t.Errorf("%q: %+v, %v; want %+v", tc.text, got, err, tc.want)
			}
		}
	}
	for _, value := range []string{
		"", "***", encoded(""), encoded("10.0.0.1"), encoded(":80"), encoded("10.0.0.1:http"), encoded("10.0.0.1:65536"),
		encoded("10.0.0.1:80,;cluster:c"), encoded(";cluster:c"),
	} {
		if got, err := decode(value); err == nil {
			t.Errorf("%q is read as %+v", value, got)
		}
	}
}

func FuzzCookie(f *testing.F) {
	for _, seed := range []string{"", "n=", "a=b; n=" + encoded("10.0.0.1:80;cluster:c"), `n="x"`, "n=" + encoded(",;;")} {
		f.Add(seed)
	}
	c := &config{name: "n", path: "/"}
	f.Fuzz(func(t *testing.T, line string) {
		value, ok := c.sessionValue(metadata.MD{"cookie": {line}})
		if !ok {
			return
		}
		s, err := decode(value)
		if err != nil {
			return
		}
		again, ok := c.sessionValue(metadata.MD{"cookie": {c.setCookie(s)}})
		if got, err := decode(again); !ok || err != nil || got != s {
			t.Errorf("%+v is decoded as %+v, %v", s, got, err)
		}
	})
}
