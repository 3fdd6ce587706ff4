package step

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"path"
	"strings"
)

// formBody is a multipart/form-data body with a length known before it is sent, streamed from its source
// (section 6): a store that reads Content-Length bytes takes a chunked body for an empty one.
type formBody struct {
	io.Reader
	contentType string
	length      int64
}

// newFormBody puts every field of the form first, unchanged and in its order, except that key names the object, and
// the file last: stores ignore what follows it.
func newFormBody(form postForm, relpath string, file io.Reader, size int64) (formBody, error) {
	random := make([]byte, 16)
	if _, err := rand.Read(random); err != nil {
		return formBody{}, err
	}
	boundary := "openai4s-" + hex.EncodeToString(random)
	var head strings.Builder
	key := form.prefix + relpath // raw UTF-8: the marker's relpath must be the key's own spelling
	keyed := false
	for _, f := range form.fields {
		value := f.value
		if f.name == "key" {
			value, keyed = key, true
		}
		writeField(&head, boundary, f.name, value)
	}
	if !keyed {
		writeField(&head, boundary, "key", key)
	}
	fmt.Fprintf(&head, "--%s\r\nContent-Disposition: form-data; name=\"file\"; filename=\"%s\"\r\n"+
		"Content-Type: application/octet-stream\r\n\r\n", boundary, partName(path.Base(relpath)))
	tail := "\r\n--" + boundary + "--\r\n"
	return formBody{
		// The file may have grown since it was measured: no byte more than was promised (section 18).
		Reader:      io.MultiReader(strings.NewReader(head.String()), exactly(file, size), strings.NewReader(tail)),
		contentType: "multipart/form-data; boundary=" + boundary,
		length:      int64(head.Len()) + size + int64(len(tail)),
	}, nil
}

func writeField(w *strings.Builder, boundary, name, value string) {
	fmt.Fprintf(w, "--%s\r\nContent-Disposition: form-data; name=\"%s\"\r\n\r\n%s\r\n", boundary, partName(name), value)
}

// partName strips what would end a quoted name early (section 18).
func partName(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '"' || r == '\\' || r < 0x20 || r == 0x7f {
			return -1
		}
		return r
	}, s)
}

// exactly reads size bytes of r and fails if r ends before.
func exactly(r io.Reader, size int64) io.Reader {
	return &exactReader{io.LimitedReader{R: r, N: size}}
}

type exactReader struct{ io.LimitedReader }

func (e *exactReader) Read(p []byte) (int, error) {
	n, err := e.LimitedReader.Read(p)
	if err == io.EOF && e.N > 0 {
		return n, transientf("a file shrank while it was sent")
	}
	return n, err
}
