package bounds

import (
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	t.Parallel()
	if got, want := Text("a\nb\x1b[31m\xff", 100), `a\nb\x1b[31m`+"\uFFFD"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	a, b := strings.Repeat("x", 5000)+"a", strings.Repeat("x", 5000)+"b"
	cut := Text(a, 100)
	if len(cut) > 160 || !strings.Contains(cut, "5001 bytes") {
		t.Errorf("a long text: %q", cut)
	}
	if cut == Text(b, 100) {
		t.Error("two texts that differ beyond the cut look alike")
	}
}

func TestQuote(t *testing.T) {
	t.Parallel()
	whole := strings.Repeat("x", ErrorText)
	for name, want := range map[string]string{
		"":          `""`,
		"a\"\x1bé":  `"a\"\x1bé"`,
		whole:       `"` + whole + `"`,
		whole + "y": `"` + whole + `…" (1025 bytes, sha256 1fd11f58)`,
	} {
		if got := Quote(name); got != want {
			t.Errorf("Quote(%.20q) is %s, want %s", name, got, want)
		}
	}
}
