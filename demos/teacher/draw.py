"""draw.py FRAME.png OUT.png: the frame, the teacher's outlines and the student's."""

import sys

import matplotlib.pyplot as plt
import onnxruntime
import torch
from teacher import make

student = onnxruntime.InferenceSession("out/teacher/student.onnx")
frame = torch.tensor(plt.imread(sys.argv[1])[..., :3]).permute(2, 0, 1)[None]
frame = torch.nn.functional.interpolate(frame, student.get_inputs()[0].shape[2:], mode="area")
with torch.no_grad():
    of_teacher = make()(frame).numpy()
of_student = student.run(None, {student.get_inputs()[0].name: frame.numpy()})[0]
figure, axes = plt.subplots(1, 3, figsize=(9, 2.6), layout="constrained")
axes[0].imshow(frame[0].permute(1, 2, 0))
axes[0].set_title("frame")
for axis, drawn, title in ((axes[1], of_teacher, "teacher"), (axes[2], of_student, "student")):
    axis.imshow(1 - drawn[0, 0], cmap="gray", vmin=0, vmax=1)
    axis.set_title(title)
for axis in axes:
    axis.axis("off")
figure.savefig(sys.argv[2], dpi=80)
