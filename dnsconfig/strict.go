package dnsconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// checkStrictly rejects what encoding/json accepts though its meaning is unclear: duplicate
// keys, bytes that are not ASCII, and deep nesting. The text is valid JSON.
func checkStrictly(text []byte) error {
	for i, b := range text {
		if b > 0x7f {
			return fmt.Errorf("byte %d of the choice is %#02x; TXT records hold ASCII only: write characters beyond it as \\u escapes", i, b)
		}
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var path []*level
	for {
		token, err := d.Token()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			if len(path) == maxDepth {
				return fmt.Errorf("objects and lists nest deeper than %d", maxDepth)
			}
			if len(path) > 0 {
				path[len(path)-1].value()
			}
			path = append(path, newLevel(token == json.Delim('{')))
		case json.Delim('}'), json.Delim(']'):
			path = path[:len(path)-1]
		default:
			if len(path) == 0 {
				continue
			}
			if err := path[len(path)-1].scalar(token); err != nil {
				return err
			}
		}
	}
}

// level is an object or a list that encloses the current token.
type level struct {
	keys  map[string]bool // nil in a list
	atKey bool            // the next token is a key
}

func newLevel(object bool) *level {
	if !object {
		return &level{}
	}
	return &level{keys: map[string]bool{}, atKey: true}
}

func (l *level) value() { l.atKey = l.keys != nil }

func (l *level) scalar(token json.Token) error {
	if !l.atKey {
		l.value()
		return nil
	}
	key := token.(string)
	if l.keys[key] {
		return fmt.Errorf("the key %s occurs twice in one object", abbreviate(key))
	}
	l.keys[key] = true
	l.atKey = false
	return nil
}
