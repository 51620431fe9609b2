package statefulsession

import (
	"encoding/base64"
	"testing"

	"google.golang.org/grpc/metadata"
)

func encoded(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

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
