package livestate

import "encoding/json"

// sentences are the keys of what is said in sentences, which may be as long as an error. All other texts are names.
var sentences = map[string]bool{
	"error": true, "last_error": true, "ambient": true, "reason": true, "why": true, "notes": true, "action": true, "text": true, "detail": true,
	"first_fault": true, "waiting": true, "reports": true, "reasons": true, "subject": true, "where": true,
}

// JSON encodes a value with each text as a function makes it, of the text and of whether it is a sentence.
func JSON(value any, cut func(text string, sentence bool) string) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var parts any
	if err := json.Unmarshal(text, &parts); err != nil {
		return nil, err
	}
	return json.Marshal(cutIn(parts, "", cut))
}

// cutIn cuts the texts in a value that json.Unmarshal has made, which has a key.
func cutIn(value any, key string, cut func(string, bool) string) any {
	switch v := value.(type) {
	case string:
		return cut(v, sentences[key])
	case []any:
		for i := range v {
			v[i] = cutIn(v[i], key, cut)
		}
	case map[string]any:
		for k := range v {
			v[k] = cutIn(v[k], k, cut)
		}
	}
	return value
}
