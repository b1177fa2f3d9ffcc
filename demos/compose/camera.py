"""A camera: serves a video, again and again at its own rate, as JPEG pictures over HTTP. camera.py FILE PORT"""

import http.server
import shutil
import subprocess
import sys

file, port = sys.argv[1:]


class Camera(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "multipart/x-mixed-replace;boundary=ffmpeg")
        self.end_headers()
        command = ["ffmpeg", "-v", "error", "-re", "-stream_loop", "-1", "-i", file, "-q:v", "4", "-f", "mpjpeg", "-"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as video:
            try:
                shutil.copyfileobj(video.stdout, self.wfile)
            except OSError:  # the viewer has left
                video.kill()


http.server.ThreadingHTTPServer(("", int(port)), Camera).serve_forever()
